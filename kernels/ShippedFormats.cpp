#include "kernels/ShippedFormats.h"

#include "dsl/Lasting.h"
#include "dsl/Module.h"
#include "dsl/StandardLibrary.h"

namespace {

using Formats = std::vector<std::shared_ptr<const rho::dsl::Format>>;

std::shared_ptr<const rho::dsl::Format> find(const Formats &formats, std::string_view name) {
  for (const auto &format : formats)
    if (format->name == name)
      return format;
  return nullptr;
}

Formats readAll() {
  Formats formats;
  for (const rho::dsl::LibraryFile &file : rho::dsl::libraryFiles())
    if (auto module = rho::dsl::parseModule("import \"" + std::string(rho::dsl::libraryPrefix) +
                                                std::string(file.name) + "\"",
                                            "library", nullptr))
      for (const rho::dsl::Format &format : module->formats)
        if (!find(formats, format.name)) // a file may import others
          formats.push_back(std::make_shared<const rho::dsl::Format>(format));
  return formats;
}

const Formats &all() {
  static const Formats &formats = rho::dsl::lasting(readAll());
  return formats;
}

} // namespace

std::shared_ptr<const rho::dsl::Format> rho::kernels::shippedFormat(std::string_view name) {
  return find(all(), name);
}

std::vector<std::string> rho::kernels::shippedFormatNames() {
  std::vector<std::string> names;
  for (const auto &format : all())
    names.push_back(format->name);
  return names;
}
