// What a worker's program for the shell does around its work.
#pragma once

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>

namespace iswitch {

/// Reads the command line and runs `body`, which gives the exit code. 2: the command line is wrong;
/// 1: an exception; one line on stderr with the program's name.
template <class Body>
int run_program(CLI::App& app, int argc, char** argv, const Body& body) {
  const auto fail = [&app](int code, const char* line) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), line);
    return code;
  };
  std::signal(SIGPIPE, SIG_IGN);  // a closed stdout is an error with a text
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : fail(2, error.what());
  }
  try {
    return body();
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}

}  // namespace iswitch
