/* A stand-in for libcudart: writes where the profiler starts and stops into the NVTX log of the tests. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int say(const char* hex) {
  const char* path = getenv("OPSCOPE_TEST_NVTX_LOG");
  char own[4096];
  const char* place = path ? strstr(path, "%p") : NULL;
  if (!place) return 1;
  snprintf(own, sizeof own, "%.*s%d%s", (int)(place - path), path, (int)getpid(), place + 2);
  FILE* out = fopen(own, "a");
  long tid = syscall(SYS_gettid);
  if (!out) return 1;
  /* the domain is "cudart"; the texts are "start" and "stop" */
  fprintf(out, "domain %ld 9999 637564617274\nmark %ld 9999 0 - plain %s\n", tid, tid, hex);
  return fclose(out);
}

int cudaProfilerStart(void) { return say("7374617274"); }
int cudaProfilerStop(void) { return say("73746f70"); }
