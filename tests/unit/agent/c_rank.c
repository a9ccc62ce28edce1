/* One rank of a job in C11, through iswitch.h alone. Each function gives NULL, or what went wrong.
 */
#include "c_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

#include "iswitch.h"

#define COUNT 5000

static const char* problem_text(int rank, const char* what, const char* error) {
  static char texts[64][512]; /* a rank is one thread */
  snprintf(texts[rank % 64], sizeof texts[0], "%s: %s", what, error);
  return texts[rank % 64];
}

#define REQUIRE(condition, what)                                \
  do {                                                          \
    if (!(condition)) {                                         \
      iswitch_agent_free(agent);                                \
      return problem_text(rank, what, error[0] ? error : "no"); \
    }                                                           \
  } while (0)

const char* c_rank(const char* address, int rank, int ranks, int caller_driven) {
  static float in[8][COUNT], out[8][COUNT];
  float *input = in[rank % 8], *output = out[rank % 8];
  char error[256] = "";
  iswitch_agent* agent = NULL;
  iswitch_options options = ISWITCH_OPTIONS_INIT;
  options.switch_address = address;
  options.rank = rank;
  options.join_timeout_ms = 10000;
  options.operation_timeout_ms = 20000;
  options.caller_driven = (uint8_t)caller_driven;
  REQUIRE(iswitch_agent_join(&options, &agent, error, sizeof error) == ISWITCH_OK, "join");
  REQUIRE(agent != NULL && error[0] == '\0', "join's outputs");
  REQUIRE(iswitch_agent_rank(agent) == rank, "rank");
  REQUIRE(iswitch_agent_size(agent) == ranks, "size");
  REQUIRE(iswitch_agent_size_expected(agent) == ranks, "size_expected");
  REQUIRE(iswitch_agent_segment_bytes(agent) == 1440, "segment_bytes");

  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += (float)(r + 1);
  for (int i = 0; i < COUNT; ++i) input[i] = (float)(rank + 1) * (float)(i % 100);
  REQUIRE(iswitch_all_reduce(agent, input, output, COUNT, ISWITCH_SUM, NULL, error, sizeof error) ==
              ISWITCH_OK,
          "all_reduce");
  for (int i = 0; i < COUNT; ++i) REQUIRE(output[i] == sum * (float)(i % 100), "sum");
  REQUIRE(iswitch_all_reduce(agent, input, input, COUNT, ISWITCH_MEAN, NULL, error, sizeof error) ==
              ISWITCH_OK,
          "mean in place");
  for (int i = 0; i < COUNT; ++i)
    REQUIRE(input[i] == sum * (float)(i % 100) / (float)ranks, "mean");

  for (int i = 0; i < COUNT; ++i) input[i] = rank == 1 ? (float)i : -1.0f;
  REQUIRE(iswitch_broadcast(agent, input, COUNT, 1, NULL, error, sizeof error) == ISWITCH_OK,
          "broadcast");
  for (int i = 0; i < COUNT; ++i) REQUIRE(input[i] == (float)i, "broadcast value");
  REQUIRE(iswitch_barrier(agent, NULL, error, sizeof error) == ISWITCH_OK, "barrier");

  /* Two at a time, with options. */
  iswitch_operation *first = NULL, *second = NULL;
  iswitch_operation_options tagged = ISWITCH_OPERATION_OPTIONS_INIT;
  tagged.tag = 7;
  tagged.timeout_ms = 20000;
  for (int i = 0; i < COUNT; ++i) input[i] = 1.0f;
  REQUIRE(iswitch_all_reduce_start(agent, input, output, COUNT, ISWITCH_SUM, &tagged, &first, error,
                                   sizeof error) == ISWITCH_OK,
          "start");
  REQUIRE(iswitch_barrier_start(agent, NULL, &second, error, sizeof error) == ISWITCH_OK,
          "start barrier");
  int outcome = ISWITCH_PENDING;
  for (int i = 0; i < 2000 && outcome == ISWITCH_PENDING; ++i) {
    if (caller_driven) iswitch_agent_progress(agent, 1000);
    outcome = iswitch_operation_wait(second, 10, error, sizeof error);
  }
  REQUIRE(outcome == ISWITCH_OK, "wait");
  REQUIRE(iswitch_operation_wait(first, -1, error, sizeof error) == ISWITCH_OK,
          "wait for the first");
  REQUIRE(iswitch_operation_done(first) == 1, "done");
  REQUIRE(iswitch_operation_partial(first) == 0, "partial");
  REQUIRE(iswitch_operation_smallest_workers(first) == (uint32_t)ranks, "smallest_workers");
  REQUIRE(iswitch_operation_missing(first, NULL, 0) == 0, "missing");
  REQUIRE(output[COUNT - 1] == (float)ranks, "overlapped sum");
  iswitch_operation_free(first);
  iswitch_operation_free(second);

  iswitch_statistics statistics;
  memset(&statistics, 0xAB, sizeof statistics);
  statistics.size = sizeof statistics;
  REQUIRE(iswitch_agent_statistics(agent, &statistics) == ISWITCH_OK, "statistics");
  REQUIRE(statistics.operations_done == 6 && statistics.operations_failed == 0,
          "operations counted");
  REQUIRE(statistics.results == statistics.contributions_sent - statistics.retransmissions,
          "results");
  /* An older caller, which knows fewer members: nothing behind them is written. */
  memset(&statistics, 0xAB, sizeof statistics);
  statistics.size = offsetof(iswitch_statistics, results);
  REQUIRE(iswitch_agent_statistics(agent, &statistics) == ISWITCH_OK, "short statistics");
  REQUIRE(statistics.contributions_sent > 0 && statistics.results == 0xABABABABABABABABu,
          "short statistics' bounds");

  /* The last rank stays away: the others learn who it is. Then all meet again. */
  if (rank != ranks - 1) {
    iswitch_operation_options hurried = ISWITCH_OPERATION_OPTIONS_INIT;
    iswitch_operation* late = NULL;
    uint16_t missing[4] = {0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF};
    hurried.timeout_ms = 1500;
    REQUIRE(iswitch_barrier_start(agent, &hurried, &late, error, sizeof error) == ISWITCH_OK,
            "start late");
    outcome = iswitch_operation_wait(late, -1, error, sizeof error);
    REQUIRE(outcome == ISWITCH_ERROR_TIMED_OUT, iswitch_error_name(outcome));
    REQUIRE(strlen(error) > 20, "text");
    char cut[10];
    REQUIRE(iswitch_operation_wait(late, -1, cut, sizeof cut) == outcome, "wait again");
    REQUIRE(strlen(cut) == sizeof cut - 1 && strncmp(cut, error, sizeof cut - 1) == 0,
            "text is cut");
    REQUIRE(iswitch_operation_missing(late, missing, 4) == 1, "one is missing");
    REQUIRE(missing[0] == ranks - 1 && missing[1] == 0xFFFF, "which one");
    iswitch_operation_free(late);
  } else {
    thrd_sleep(&(struct timespec){.tv_sec = 3}, NULL);
  }
  for (int i = 0; i < 50; ++i) {
    outcome = iswitch_barrier(agent, NULL, error, sizeof error);
    if (outcome == ISWITCH_OK) break;
  }
  REQUIRE(outcome == ISWITCH_OK, "barrier after the reset");

  /* A Reset that a member asks for: all are told, each once. */
  if (rank == 0) {
    iswitch_operation* lost = NULL;
    REQUIRE(iswitch_barrier_start(agent, NULL, &lost, error, sizeof error) == ISWITCH_OK, "start");
    iswitch_request_reset(agent);
    outcome = iswitch_operation_wait(lost, -1, error, sizeof error);
    iswitch_operation_free(lost);
  } else {
    thrd_sleep(&(struct timespec){.tv_sec = 1}, NULL);
    outcome = iswitch_barrier(agent, NULL, error, sizeof error);
  }
  REQUIRE(outcome == ISWITCH_ERROR_JOB_RESET, iswitch_error_name(outcome));
  REQUIRE(iswitch_barrier(agent, NULL, error, sizeof error) == ISWITCH_OK, "all meet again");

  REQUIRE(iswitch_agent_leave(agent, error, sizeof error) == ISWITCH_OK, "leave");
  REQUIRE(iswitch_barrier(agent, NULL, error, sizeof error) == ISWITCH_ERROR_CLOSED, "closed");
  iswitch_agent_free(agent);
  return NULL;
}

const char* c_async_rank(const char* address, int rank, int ranks, int caller_driven) {
  enum { pushes = 20, segment = 360, segments = (COUNT + segment - 1) / segment };
  static float in[8][COUNT], out[8][COUNT];
  float *gradient = in[rank % 8], *weights = out[rank % 8];
  float values[segment];
  uint32_t numbers[segments];
  uint32_t base_round = 0;
  char error[256] = "";
  iswitch_agent* agent = NULL;
  iswitch_operation* operation = NULL;
  iswitch_options options = ISWITCH_OPTIONS_INIT;
  options.switch_address = address;
  options.rank = 100 + rank;
  options.member = rank;
  options.join_timeout_ms = 10000;
  options.operation_timeout_ms = 20000;
  options.caller_driven = (uint8_t)caller_driven;
  options.async_elements = COUNT;
  REQUIRE(iswitch_agent_join(&options, &agent, error, sizeof error) == ISWITCH_OK, "join");
  REQUIRE(iswitch_agent_rank(agent) == 100 + rank, "rank");
  REQUIRE(iswitch_agent_member(agent) == rank, "member");
  REQUIRE(iswitch_barrier(agent, NULL, error, sizeof error) == ISWITCH_ERROR_BAD_ARGUMENT,
          "no barrier");
  REQUIRE(iswitch_push_start(agent, gradient, 7, NULL, &operation, error, sizeof error) ==
              ISWITCH_ERROR_BAD_ARGUMENT,
          "another length");

  iswitch_update update = {.size = sizeof update, .values = values, .capacity = segment};
  iswitch_event event = {.size = sizeof event};
  for (int i = 0; i < COUNT; ++i) {
    gradient[i] = (float)(rank + 1) * (float)(i % 100);
    weights[i] = 0;
  }
  int pushed = 0, done = 0;
  for (int turn = 0, left = pushes * segments; left > 0 || done < pushes; ++turn) {
    REQUIRE(turn < 100000, "the updates end");
    const int outcome = iswitch_next(agent, 10, &update, &event, error, sizeof error);
    if (outcome == ISWITCH_EVENT) {
      /* This was the last to join: nothing has happened yet. */
      REQUIRE(event.kind == ISWITCH_EVENT_JOINED && event.untouched, "event");
      REQUIRE(iswitch_numbers(agent, &base_round, numbers, segments) == segments, "numbers");
      REQUIRE(base_round == event.base_round && numbers[0] == base_round, "base round");
      REQUIRE(iswitch_resume(agent, base_round + 1, numbers, segments, error, sizeof error) ==
                  ISWITCH_ERROR_JOB_RESET,
              "another base round");
      REQUIRE(
          iswitch_resume(agent, base_round, numbers, segments, error, sizeof error) == ISWITCH_OK,
          "resume");
      iswitch_operation_free(operation); /* one that failed with the event */
      if (operation != NULL) --pushed;
      operation = NULL;
    } else if (outcome == ISWITCH_OK) {
      REQUIRE(update.count <= segment && update.first == (uint64_t)update.segment * segment,
              "slice");
      REQUIRE(update.workers == ranks && !update.partial, "workers");
      for (size_t i = 0; i < update.count; ++i) weights[update.first + i] += values[i];
      --left;
    } else {
      REQUIRE(outcome == ISWITCH_PENDING, "next");
    }
    if (operation != NULL && iswitch_operation_done(operation)) {
      const int ended = iswitch_operation_wait(operation, -1, error, sizeof error);
      if (ended == ISWITCH_ERROR_GONE) continue; /* the event comes */
      REQUIRE(ended == ISWITCH_OK, "push");
      iswitch_operation_free(operation);
      operation = NULL;
      ++done;
    }
    if (operation == NULL && pushed < pushes) {
      const int started =
          iswitch_push_start(agent, gradient, COUNT, NULL, &operation, error, sizeof error);
      REQUIRE(started == ISWITCH_OK, "start");
      ++pushed;
    }
  }
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += (float)(r + 1);
  for (int i = 0; i < COUNT; ++i)
    REQUIRE(weights[i] == (float)pushes * sum * (float)(i % 100), "weights");
  iswitch_statistics statistics = {.size = sizeof statistics};
  REQUIRE(iswitch_agent_statistics(agent, &statistics) == ISWITCH_OK, "statistics");
  REQUIRE(statistics.updates == pushes * segments, "updates counted");
  iswitch_agent_free(agent);
  return NULL;
}

const char* c_misuse(const char* address) {
  const int rank = 0;
  char error[256] = "";
  float data[4] = {1, 2, 3, 4};
  iswitch_agent* agent = NULL;
  iswitch_operation* operation = NULL;
  iswitch_options options = ISWITCH_OPTIONS_INIT;
  const int bad = ISWITCH_ERROR_BAD_ARGUMENT;

  REQUIRE(strcmp(iswitch_error_name(ISWITCH_OK), "ok") == 0, "name of ok");
  for (int code = 1; code <= 12; ++code) {
    REQUIRE(strcmp(iswitch_error_name(code), "unknown error") != 0, "name of an error");
  }
  REQUIRE(strcmp(iswitch_error_name(-5), "unknown error") == 0, "name of nothing");
  REQUIRE(iswitch_version()[0] != '\0', "version");
  REQUIRE(iswitch_abi_version() == ISWITCH_ABI_VERSION, "ABI version");

  REQUIRE(iswitch_agent_join(NULL, &agent, error, sizeof error) == bad && error[0] != '\0',
          "no options");
  REQUIRE(iswitch_agent_join(&options, NULL, error, sizeof error) == bad, "no agent");
  REQUIRE(iswitch_agent_join(&options, &agent, error, sizeof error) == bad, "no address");
  options.switch_address = address;
  options.size = 0;
  REQUIRE(iswitch_agent_join(&options, &agent, error, sizeof error) == bad, "no size");
  options.size = sizeof options;
  options.rank = 70000;
  REQUIRE(iswitch_agent_join(&options, &agent, error, sizeof error) == bad, "rank");
  options.rank = ISWITCH_ANY_RANK;
  options.key_file = "no-such-file";
  REQUIRE(iswitch_agent_join(&options, &agent, NULL, 0) == bad && agent == NULL, "no text wanted");
  /* A caller of a time when the struct ended with the address. */
  options.size = offsetof(iswitch_options, local_address);
  REQUIRE(iswitch_agent_join(&options, &agent, error, sizeof error) == ISWITCH_OK, "old caller");

  REQUIRE(iswitch_all_reduce(NULL, data, data, 4, ISWITCH_SUM, NULL, error, sizeof error) == bad,
          "NULL agent");
  REQUIRE(
      iswitch_all_reduce(agent, data, data + 1, 2, ISWITCH_SUM, NULL, error, sizeof error) == bad,
      "overlap");
  REQUIRE(iswitch_all_reduce(agent, data, data, 4, 9, NULL, error, sizeof error) == bad, "reduce");
  REQUIRE(iswitch_all_reduce_start(agent, data, data, 4, ISWITCH_SUM, NULL, NULL, error,
                                   sizeof error) == bad,
          "no operation");
  iswitch_operation_options unsized = {0, 100, 0};
  REQUIRE(iswitch_barrier_start(agent, &unsized, &operation, error, sizeof error) == bad &&
              operation == NULL,
          "unsized options");
  REQUIRE(iswitch_operation_wait(NULL, 0, error, sizeof error) == bad, "wait for nothing");
  REQUIRE(iswitch_operation_done(NULL) == 1, "nothing is done");
  REQUIRE(iswitch_operation_missing(NULL, NULL, 0) == 0, "nobody is missing");
  REQUIRE(iswitch_agent_statistics(agent, NULL) == bad, "no statistics");
  REQUIRE(iswitch_agent_leave(NULL, error, sizeof error) == bad, "leave nothing");
  iswitch_update update = {.size = sizeof update};
  iswitch_event event = {.size = sizeof event};
  REQUIRE(iswitch_next(agent, 0, &update, &event, error, sizeof error) == bad, "no room");
  update.values = data;
  update.capacity = 100000;
  REQUIRE(iswitch_next(NULL, 0, &update, &event, error, sizeof error) == bad, "next of nothing");
  REQUIRE(iswitch_next(agent, 0, &update, &event, error, sizeof error) == bad,
          "next of a synchronous job");
  REQUIRE(iswitch_resume(agent, 0, NULL, 0, error, sizeof error) == bad,
          "resume of a synchronous job");
  REQUIRE(iswitch_numbers(NULL, NULL, NULL, 0) == 0, "numbers of nothing");
  REQUIRE(iswitch_push_start(agent, data, 4, NULL, &operation, error, sizeof error) == bad,
          "push in a synchronous job");
  REQUIRE(iswitch_agent_rank(NULL) == 0xFFFF && iswitch_agent_size(NULL) == 0, "rank of nothing");
  iswitch_agent_progress(NULL, 0);
  iswitch_request_reset(NULL);
  iswitch_operation_free(NULL);
  iswitch_agent_free(NULL);
  REQUIRE(iswitch_all_reduce(agent, data, data, 4, ISWITCH_SUM, NULL, NULL, 0) == ISWITCH_OK,
          "and it works");
  iswitch_agent_free(agent);
  return NULL;
}
