// A process that forks has no OpenMP threads while it does: libgomp would wait in the child, for
// ever, for threads that only the parent has. Both start theirs again at the next kernel. A server
// that opens its models and then forks its workers needs it, as does a training step in a child.
// Where other threads run meanwhile, it waits until none of them holds a mutex.
#include <omp.h>
#include <pthread.h>

#include "csrc/core/mutex.h"

namespace ort {
namespace {

// Of the thread that forks, the only one that the child has. Inside a parallel region, where
// nothing can be ended, nothing is done. They give memory back as they end: mutexes come after it.
void before_fork() {
  omp_pause_resource_all(omp_pause_soft);
  Mutex::lock_all();
}

const int kRegistered = pthread_atfork(before_fork, Mutex::unlock_all, Mutex::renew_all);

}  // namespace
}  // namespace ort
