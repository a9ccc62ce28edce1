// That pages are in use is asked of the kernel.
#include "wire/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

using namespace iswitch;

namespace {

class Fresh {
 public:
  explicit Fresh(std::size_t pages) : bytes_(pages * smallest_page) {
    void* const mapped =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    memory_ = static_cast<std::uint8_t*>(mapped);
    madvise(mapped, bytes_, MADV_NOHUGEPAGE);
  }
  ~Fresh() { munmap(memory_, bytes_); }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;

  std::uint8_t* at(std::size_t byte) { return memory_ + byte; }
  std::size_t in_use() const {
    std::vector<unsigned char> states(bytes_ / smallest_page);
    REQUIRE(mincore(memory_, bytes_, states.data()) == 0);
    return static_cast<std::size_t>(
        std::count_if(states.begin(), states.end(), [](unsigned char s) { return (s & 1) != 0; }));
  }

 private:
  std::size_t bytes_;
  std::uint8_t* memory_ = nullptr;
};

}  // namespace

TEST_CASE("each page is in use afterwards, and holds what it held") {
  Fresh memory(16);
  REQUIRE(memory.in_use() == 0);
  std::memset(memory.at(5 * smallest_page), 7, smallest_page);
  REQUIRE(memory.in_use() == 1);
  use_each_page(memory.at(0), 16 * smallest_page);
  CHECK(memory.in_use() == 16);
  CHECK(std::all_of(memory.at(5 * smallest_page), memory.at(6 * smallest_page),
                    [](std::uint8_t byte) { return byte == 7; }));
  CHECK(std::all_of(memory.at(6 * smallest_page), memory.at(16 * smallest_page),
                    [](std::uint8_t byte) { return byte == 0; }));
}

TEST_CASE("memory that begins and ends in the middle of pages, and none") {
  Fresh memory(8);
  use_each_page(memory.at(0), 0);
  CHECK(memory.in_use() == 0);
  use_each_page(memory.at(smallest_page - 1), 2);
  CHECK(memory.in_use() == 2);
  use_each_page(memory.at(3 * smallest_page + 100), 3 * smallest_page);
  CHECK(memory.in_use() == 6);
}
