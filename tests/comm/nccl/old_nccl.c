/* A library that says it is NCCL of VERSION and has no more of it than this. */
int ncclGetVersion(int* version);
const char* ncclGetErrorString(int result);

int ncclGetVersion(int* version) {
  *version = VERSION;
  return 0;
}
const char* ncclGetErrorString(int result) { return result == 0 ? "no error" : "an error"; }
