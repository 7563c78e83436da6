// The text of `dtrun bench --help`.

#include "launcher/cli/help.h"
#include "lab/plan/flags.h"

namespace dtrun::lab {
namespace {

constexpr std::string_view kIntroduction =
    R"(usage: dtrun bench [options] [-- PROGRAM [ARGUMENT...]]

Measures how fast ranks communicate, through each communication library
(backend) and in every shape: on 1, 2, 4, ... hosts with 1, 2, 4, ... ranks on
each. Every result is checked. With --train it also trains a small network, on
one rank and on many, with gradients of 32, 16 and 8 bits. Given a program of
yours, it measures that program's steps instead.

Examples:
  dtrun bench
      what this machine can do, within about a minute
  dtrun bench -H s1:4,s2:4,s3:4,s4:4 --html report.html
      1 to 16 ranks on 1 to 4 hosts
  dtrun bench -H s1:4,s2:4 --backends dtrun,mpi --hosts 2 --slots 4 \
      --sizes 4..64M:x4 --compress none,fp16,int8
      one shape, all sizes, and how much compression helps
  dtrun bench -H s1:4,s2:4 --train --data mnist --markdown lab.md
      the tables of the lab: steps, throughput, speed-up, accuracy
  dtrun bench --no-sweep --train --seeds 5 --target-accuracy 96% --html t.html
      accuracy over time with intervals, and how long it took to reach 96 %
  dtrun bench -H s1,s2,s3,s4 --no-sweep --pairs hosts
      which of the hosts has a slow cable
  dtrun bench -H s1:4,s2:4 --global-batch 512 --html t.html -- python3 train.py
      steps of your program in every shape, if it calls Worker.progress(step)
      of dtrun or trains with dtrun.torch; of others by --step-regex
  dtrun bench --compare before.json after.json
      what became faster or slower, beyond noise

Columns are those of nccl-tests: size is that of the whole array, time the mean
of the slowest rank, and algbw = size / time. busbw is what a link carries,
whatever the number n of ranks: algbw x 2(n-1)/n for allreduce, (n-1)/n for
allgather, reduce_scatter, alltoall, gather and scatter, 1 for others. 1 GB is
1e9 bytes. Speed-up is T(1) / T(p) of a training step, efficiency speed-up / p.
)";

constexpr std::string_view kEnd = R"(
Exit code: 0; 1 if a result was wrong or a run failed (the others are reported
all the same); 200 wrong arguments, or a report that cannot be written to; 210
if it could not be written at the end; 128+n after signal n.
)";

}  // namespace

std::string bench_help() {
    static constexpr cli::HelpSection kSections[] = {
        {cli::FlagGroup::native, "What is measured"},
        {cli::FlagGroup::training, "Training"},
        {cli::FlagGroup::output, "Reports and messages"},
        {cli::FlagGroup::hosts, "Where ranks run"},
        {cli::FlagGroup::binding, "Processors of ranks"},
        {cli::FlagGroup::environment, "What ranks start with"},
        {cli::FlagGroup::reaching, "Reaching the hosts"},
        {cli::FlagGroup::ending, "Limits"},
        {cli::FlagGroup::other, "About dtrun"},
    };
    return std::string(kIntroduction) + cli::sections(bench_flags().flags(), kSections) +
           std::string(kEnd);
}

}  // namespace dtrun::lab
