#include "dsl/Source.h"

#include <algorithm>
#include <utility>

namespace rho {

uint32_t SourceMap::add(std::string name, std::string text) {
  File file{std::move(name), std::move(text), {0}};
  for (size_t i = 0; i < file.text.size(); ++i)
    if (file.text[i] == '\n')
      file.lineStarts.push_back(static_cast<uint32_t>(i + 1));
  files.push_back(std::move(file));
  return static_cast<uint32_t>(files.size() - 1);
}

SourceMap::LineColumn SourceMap::lineColumn(uint32_t file, uint32_t offset) const {
  const std::vector<uint32_t> &starts = files[file].lineStarts;
  auto after = std::upper_bound(starts.begin(), starts.end(), offset);
  auto line = static_cast<uint32_t>(after - starts.begin());
  return {line, offset - starts[line - 1] + 1};
}

std::string_view SourceMap::line(uint32_t file, uint32_t line) const {
  const File &f = files[file];
  if (line == 0 || line > f.lineStarts.size())
    return {};
  size_t begin = f.lineStarts[line - 1];
  size_t end = line < f.lineStarts.size() ? f.lineStarts[line] - 1 : f.text.size();
  if (end > begin && f.text[end - 1] == '\r')
    --end;
  return std::string_view(f.text).substr(begin, end - begin);
}

} // namespace rho
