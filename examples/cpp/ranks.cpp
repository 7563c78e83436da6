// What dtrun's client can do, in a few lines: dtrun -np 4 ./ranks, or srun -n 4 ./ranks

#include <dtrun/worker.h>

#include <unistd.h>
#include <chrono>
#include <iostream>
#include <sstream>
#include <string>

using namespace std::chrono_literals;

int main() try {
    dtrun::Worker worker;

    // Every rank brings something that the others need, and learns what they bring.
    std::ostringstream mine;
    mine << worker.host_name() << '/' << ::getpid();
    std::ostringstream line;  // one write, so that lines of ranks do not mix
    line << "rank " << worker.rank() << " of " << worker.world_size() << " (" << worker.launcher()
         << "):";
    for (const std::string& theirs : worker.fence("addresses", mine.str(), 60s))
        line << ' ' << theirs;
    std::cout << line.str() + '\n';

    for (unsigned step = 0; step < 3; ++step) {
        worker.barrier("step", 60s);
        worker.progress(step);
    }

    if (worker.world_size() == 1) return 0;  // nobody to share with
    if (worker.rank() == 0) worker.set("result", "42");
    const std::string result = worker.get("result", 60s);
    std::cout << "rank " + std::to_string(worker.rank()) + ": the result is " + result + '\n';
    return 0;
} catch (const dtrun::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
