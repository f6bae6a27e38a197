// The configurations, in parts (-DPART=) that compile apart:
// CONFIG(index, weight rows, batch, k, cluster, Cooperative or Pingpong, Persistent or StreamK)
#ifndef FP8
#if PART == 0
CONFIG(0, 128, 16, 64, 1, Cooperative, Persistent)
CONFIG(1, 128, 32, 64, 1, Cooperative, Persistent)
CONFIG(2, 128, 64, 64, 1, Cooperative, Persistent)
CONFIG(3, 64, 16, 64, 1, Pingpong, Persistent)
#elif PART == 1
CONFIG(4, 128, 128, 64, 2, Cooperative, Persistent)
CONFIG(5, 128, 256, 64, 2, Cooperative, Persistent)
CONFIG(6, 64, 128, 64, 1, Pingpong, Persistent)
#elif PART == 2
CONFIG(7, 128, 16, 64, 1, Cooperative, StreamK)
CONFIG(8, 128, 64, 64, 1, Cooperative, StreamK)
CONFIG(9, 64, 32, 64, 1, Pingpong, Persistent)
#elif PART == 3
CONFIG(10, 256, 128, 64, 2, Cooperative, Persistent)
CONFIG(11, 128, 128, 64, 1, Cooperative, StreamK)
CONFIG(12, 128, 32, 64, 1, Cooperative, StreamK)
#endif
#else
#if PART == 0
CONFIG(0, 128, 16, 128, 1, Cooperative, Persistent)
CONFIG(1, 128, 32, 128, 1, Cooperative, Persistent)
CONFIG(2, 128, 64, 128, 1, Cooperative, Persistent)
#elif PART == 1
CONFIG(3, 128, 128, 128, 2, Cooperative, Persistent)
CONFIG(4, 128, 256, 128, 2, Cooperative, Persistent)
CONFIG(5, 128, 16, 128, 1, Cooperative, StreamK)
#elif PART == 2
CONFIG(6, 128, 64, 128, 1, Cooperative, StreamK)
CONFIG(7, 64, 32, 128, 1, Pingpong, Persistent)
CONFIG(8, 128, 32, 128, 1, Cooperative, StreamK)
#endif
#endif
