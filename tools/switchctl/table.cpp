#include "tools/switchctl/table.h"

#include <algorithm>

namespace iswitch::switchctl {

std::string Table::text(const std::string& nothing) const {
  if (rows_.empty()) return nothing + "\n";
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = columns_[c].heading.size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string fill(widths[c] - cell.size(), ' ');
      if (c > 0) text += "  ";
      text += columns_[c].align == Align::right ? fill + cell : cell + fill;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](std::size_t c) -> const std::string& { return columns_[c].heading; });
  for (const auto& row : rows_) line([&](std::size_t c) -> const std::string& { return row[c]; });
  return out;
}

}  // namespace iswitch::switchctl
