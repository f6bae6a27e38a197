#pragma once
#include "torch_utils.h"
