/* A program that is no Python: it uses the stand-in for CUDA and CUPTI as CUDA's driver would.
 *
 * Arguments: the stand-in's file, how many launches, how many threads, seconds to wait at the end, and "fork"
 * to fork in the middle.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t (*launch)(uint32_t, uint32_t, uint64_t);
static int many;

static void* work(void* nothing) {
  (void)nothing;
  for (int i = 0; i < many; i++) launch(0, (uint32_t)(1 + i % 5), 0);
  return NULL;
}

int main(int count, char** words) {
  pthread_t threads[16];
  void* cupti = count > 4 ? dlopen(words[1], RTLD_NOW) : NULL;
  if (!cupti) return 2;
  launch = (uint32_t (*)(uint32_t, uint32_t, uint64_t))dlsym(cupti, "standin_launch");
  many = atoi(words[2]);
  /* cuInit: the driver loads the injection library */
  const char* path = getenv("CUDA_INJECTION64_PATH");
  void* injected = path ? dlopen(path, RTLD_NOW) : NULL;
  int (*begin)(void) = injected ? (int (*)(void))dlsym(injected, "InitializeInjection") : NULL;
  if (begin && begin() != 1) return 3;
  for (int i = 0; i < atoi(words[3]); i++) pthread_create(threads + i, NULL, work, NULL);
  for (int i = 0; i < atoi(words[3]); i++) pthread_join(threads[i], NULL);
  if (count > 5 && !strcmp(words[5], "fork")) {
    pid_t child = fork();
    if (!child) {
      launch(0, 1, 0);
      exit(5); /* runs what is registered at exit */
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) != 5) return 4;
    work(NULL);
  }
  fputs("done\n", stdout);
  fflush(stdout);
  sleep((unsigned)atoi(words[4]));
  return 7;
}
