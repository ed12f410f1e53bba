// The program that precompiled.h is compiled with: it has the options of those that read it.
int main() { return 0; }
