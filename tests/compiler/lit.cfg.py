# lit's configuration for the text tests of this directory: *.mlir and *.rho with RUN lines.
#   %rho    the tool
#   %root   the root of the source tree, for the shipped kernels/
# The disk cache lies in the output directory. CMake hands over the tool and that directory.
import os

import lit.formats

config.name = "compiler"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".rho"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = lit_config.params["output"]
config.substitutions += [
    ("%rho", lit_config.params["rho"]),
    ("%root", os.path.dirname(os.path.dirname(config.test_source_root))),
]
config.environment["PATH"] = lit_config.params["tools"] + os.pathsep + config.environment["PATH"]
config.environment["RHO_CACHE_DIR"] = os.path.join(config.test_exec_root, "cache")
