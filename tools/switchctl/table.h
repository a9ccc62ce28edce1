// A table for people: columns as wide as they must be, numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace iswitch::switchctl {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string heading;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as there are columns.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Heading and rows, each line ended by a newline; `nothing` alone when there are no rows.
  std::string text(const std::string& nothing) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace iswitch::switchctl
