/* A stand-in for CUDA's driver (libcuda.so.1): contexts that are made current, and what the device is.
 *
 * A context is any number; device 0 has a primary context unless CUDA_STAND_IN_UNUSED is set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread void* stack[16];
static __thread int depth;

int cuCtxPushCurrent_v2(void* context) {
  if (!context || depth == 16) return 201;
  stack[depth++] = context;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  if (!depth) return 201;
  *context = stack[--depth];
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return depth ? 0 : 201;
}
int cuCtxSynchronize(void) { return depth ? 0 : 201; }
int cuDeviceGetCount(int* many) {
  *many = 1;
  return 0;
}
int cuDeviceGetName(char* name, int room, int device) {
  snprintf(name, (size_t)room, "NVIDIA A100-SXM4-40GB");
  return device;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = 42297786368u;
  return device;
}
int cuDeviceGetAttribute(int* value, int which, int device) {
  *value = which == 13 ? 1410000
      : which == 16    ? 108
      : which == 36    ? 1215000
      : which == 37    ? 5120
      : which == 39    ? 2048
      : which == 75    ? 8
                       : 0;
  return device;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = !getenv("CUDA_STAND_IN_UNUSED");
  return device;
}
