// A process that forks has no OpenMP threads while it does: libgomp would wait in the child, for
// ever, for threads that only the parent has. Both start theirs again at the next kernel. A server
// that opens its models and then forks its workers needs it, as does a training step in a child.
#include <omp.h>
#include <pthread.h>

namespace ort {
namespace {

// Of the thread that forks, the only one that the child has. Inside a parallel region, where
// nothing can be ended, nothing is done.
void end_threads() {
  omp_pause_resource_all(omp_pause_soft);
}

const int kRegistered = pthread_atfork(end_threads, nullptr, nullptr);

}  // namespace
}  // namespace ort
