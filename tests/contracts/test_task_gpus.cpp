#include "contracts/task_gpus.h"
#include "tests/support/catch.h"

namespace dtrun {

using namespace contracts;
namespace {

/// CUDA_VISIBLE_DEVICES of a task whose node has `all`; "all" where it sees all of them.
std::string seen(Environment asked, std::size_t task, const std::string& all = "0,1,2,3") {
    asked["CUDA_VISIBLE_DEVICES"] = all;
    const Variables lists = devices_of_task(asked, task);
    return lists.empty() ? "all" : lists.front().second;
}

}  // namespace

TEST_CASE("a rank sees all GPUs of its node unless Slurm was asked for GPUs of each task",
          "[contract][slurm]") {
    CHECK(seen({}, 1) == "all");
    CHECK(seen({{"SLURM_GPUS_PER_NODE", "4"}}, 1) == "all");
    CHECK(seen({{"SLURM_GPUS_PER_TASK", "1"}, {"SLURM_GPU_BIND", "none"}}, 1) == "all");
    CHECK(seen({{"SLURM_GPU_BIND", "closest"}}, 1) == "all");
    CHECK(seen({{"SLURM_GPU_BIND", "map_gpu:x"}}, 0) == "all");
    CHECK(seen({{"SLURM_GPUS_PER_TASK", "1"}}, 0, "5") == "all");  // of one there is no part
    CHECK(devices_of_task({{"SLURM_GPUS_PER_TASK", "1"}}, 0).empty());
}

TEST_CASE("GPUs of each task are as srun hands them out", "[contract][slurm]") {
    CHECK(seen({{"SLURM_GPUS_PER_TASK", "1"}}, 2) == "2");
    CHECK(seen({{"SLURM_GPUS_PER_TASK", "a100:2"}}, 1) == "2,3");
    CHECK(seen({{"SLURM_GPUS_PER_TASK", "1"}}, 5) == "1");  // more ranks than GPUs share them
    CHECK(seen({{"SLURM_TRES_PER_TASK", "cpu=4,gres/gpu=2"}}, 1) == "2,3");
    CHECK(seen({{"SLURM_TRES_PER_TASK", "gres:gpu:1"}}, 3) == "3");
    CHECK(seen({{"SLURM_NTASKS_PER_GPU", "2"}}, 3) == "1");
    CHECK(seen({{"SLURM_GPU_BIND", "single:2"}}, 5) == "2");
    CHECK(seen({{"SLURM_GPU_BIND", "verbose,per_task:2"}}, 1) == "2,3");
    CHECK(seen({{"SLURM_TRES_BIND", "gres/gpu:single:1"}}, 1) == "1");
    CHECK(seen({{"SLURM_GPU_BIND", "map_gpu:3,1"}}, 0) == "3");
    CHECK(seen({{"SLURM_GPU_BIND", "map_gpu:3,1"}}, 3) == "1");
    CHECK(seen({{"SLURM_GPU_BIND", "mask_gpu:0x3,0xc"}}, 1) == "2,3");
    CHECK(seen({{"SLURM_GPUS_PER_TASK", "1"}}, 1, "GPU-7f, GPU-80") == "GPU-80");
}

TEST_CASE("every list of devices that a rank has becomes that of its own", "[contract][slurm]") {
    const Variables lists = devices_of_task({{"SLURM_GPUS_PER_TASK", "1"},
                                             {"CUDA_VISIBLE_DEVICES", "0,1"},
                                             {"ROCR_VISIBLE_DEVICES", "0,1"},
                                             {"SLURM_STEP_GPUS", "2,3"},
                                             {"ZE_AFFINITY_MASK", ""}},
                                            1);
    CHECK(lists == Variables{{"CUDA_VISIBLE_DEVICES", "1"},
                             {"ROCR_VISIBLE_DEVICES", "1"},
                             {"SLURM_STEP_GPUS", "3"}});
}

}  // namespace dtrun
