#pragma once
// How wide the parallel loop is that runs on this thread.

namespace strata {

/// Threads that may take part in the parallel loop whose body runs on this thread: no more than it has chunks. 1 outside
/// of loops. Which of them do is another matter each time.
int loop_width();

}  // namespace strata
