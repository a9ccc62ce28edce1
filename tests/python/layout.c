/* The C interface as the compiler sees it, for test_module.py to compare with the module's
 * declarations: a line each of "struct NAME SIZE", "field STRUCT.NAME OFFSET SIZE" and "value NAME
 * NUMBER". */
#include <stddef.h>
#include <stdio.h>

#include "iswitch.h"

#define STRUCT(name) printf("struct %s %zu\n", #name, sizeof(iswitch_##name))
#define FIELD(type, name)                                                       \
  printf("field %s.%s %zu %zu\n", #type, #name, offsetof(iswitch_##type, name), \
         sizeof(((iswitch_##type*)0)->name))
#define VALUE(name) printf("value %s %d\n", #name, (int)(name))

int main(void) {
  STRUCT(options);
  FIELD(options, size);
  FIELD(options, switch_address);
  FIELD(options, local_address);
  FIELD(options, key_file);
  FIELD(options, rank);
  FIELD(options, job);
  FIELD(options, local_port);
  FIELD(options, join_timeout_ms);
  FIELD(options, operation_timeout_ms);
  FIELD(options, window_bytes);
  FIELD(options, ecn);
  FIELD(options, caller_driven);
  FIELD(options, member);
  FIELD(options, async_elements);
  FIELD(options, device);
  FIELD(options, resume_within_ms);

  STRUCT(operation_options);
  FIELD(operation_options, size);
  FIELD(operation_options, timeout_ms);
  FIELD(operation_options, tag);

  STRUCT(statistics);
  FIELD(statistics, size);
  FIELD(statistics, contributions_sent);
  FIELD(statistics, retransmissions);
  FIELD(statistics, results);
  FIELD(statistics, duplicate_results);
  FIELD(statistics, gradient_bytes_sent);
  FIELD(statistics, gradient_bytes_received);
  FIELD(statistics, operations_done);
  FIELD(statistics, operations_failed);
  FIELD(statistics, resets);
  FIELD(statistics, send_calls);
  FIELD(statistics, receive_calls);
  FIELD(statistics, smoothed_rtt_ns);
  FIELD(statistics, retransmit_timeout_ns);
  FIELD(statistics, ecn_marks);
  FIELD(statistics, window_bytes);
  FIELD(statistics, updates);
  FIELD(statistics, helps);
  FIELD(statistics, resumes);

  STRUCT(update);
  FIELD(update, size);
  FIELD(update, values);
  FIELD(update, capacity);
  FIELD(update, count);
  FIELD(update, first);
  FIELD(update, segment);
  FIELD(update, number);
  FIELD(update, workers);
  FIELD(update, partial);

  STRUCT(event);
  FIELD(event, size);
  FIELD(event, kind);
  FIELD(event, base_round);
  FIELD(event, untouched);

  VALUE(ISWITCH_ABI_VERSION);
  VALUE(ISWITCH_ANY_RANK);
  VALUE(ISWITCH_ANY_MEMBER);
  VALUE(ISWITCH_MEMBER_IS_RANK);
  VALUE(ISWITCH_SUM);
  VALUE(ISWITCH_MEAN);
  VALUE(ISWITCH_PENDING);
  VALUE(ISWITCH_EVENT);
  VALUE(ISWITCH_EVENT_JOINED);
  VALUE(ISWITCH_EVENT_GONE);
  VALUE(ISWITCH_EVENT_RESET);
  VALUE(ISWITCH_ERROR_NOT_JOINED);
  VALUE(ISWITCH_ERROR_REFUSED);
  VALUE(ISWITCH_ERROR_TIMED_OUT);
  VALUE(ISWITCH_ERROR_JOB_RESET);
  VALUE(ISWITCH_ERROR_SWITCH_GONE);
  VALUE(ISWITCH_ERROR_HALTED);
  VALUE(ISWITCH_ERROR_MISMATCH);
  VALUE(ISWITCH_ERROR_GONE);
  VALUE(ISWITCH_ERROR_BAD_ARGUMENT);
  VALUE(ISWITCH_ERROR_CLOSED);
  VALUE(ISWITCH_ERROR_SYSTEM);
  VALUE(ISWITCH_ERROR_ROOT_MISSING);
  VALUE(ISWITCH_ERROR_IN_DOUBT);
  return 0;
}
