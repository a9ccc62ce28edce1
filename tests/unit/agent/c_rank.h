#ifndef ISWITCH_TESTS_C_RANK_H
#define ISWITCH_TESTS_C_RANK_H

#ifdef __cplusplus
extern "C" {
#endif

/* NULL, or what went wrong. At most eight ranks, one thread each. */
const char* c_rank(const char* address, int rank, int ranks, int caller_driven);
/* A rank of an asynchronous job. */
const char* c_async_rank(const char* address, int rank, int ranks, int caller_driven);
const char* c_misuse(const char* address);

#ifdef __cplusplus
}
#endif

#endif
