/* What the C tests count and print. */
#ifndef TESTS_ADAPTERS_C_CHECKS_H
#define TESTS_ADAPTERS_C_CHECKS_H

#include <stdio.h>
#include <string.h>

/* One for all files of a program: what a test counts is what its ranks end with. */
__attribute__((weak)) int failures = 0;

#define GW_CHECK_THAT(condition)                                                  \
  do {                                                                            \
    if (!(condition)) {                                                           \
      ++failures;                                                                 \
      fprintf(stderr, "%s:%d: not so: %s [%s]\n", __FILE__, __LINE__, #condition, \
              gw_last_error());                                                   \
    }                                                                             \
  } while (0)

/* The call fails so, and its sentence has these words in it. */
#define GW_CHECK_REFUSED(call, status, words)                                                \
  do {                                                                                       \
    const gw_status seen_ = (call);                                                          \
    if (seen_ != (status) || strstr(gw_last_error(), (words)) == NULL) {                     \
      ++failures;                                                                            \
      fprintf(stderr, "%s:%d: %s: status %d, '%s' (status %d with '%s' wanted)\n", __FILE__, \
              __LINE__, #call, (int)seen_, gw_last_error(), (int)(status), (words));         \
    }                                                                                        \
  } while (0)

#endif
