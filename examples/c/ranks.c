/* What dtrun's client can do, in a few lines: dtrun -np 4 ./ranks, or srun -n 4 ./ranks */

#include <dtrun.h>

#include <stdio.h>
#include <string.h>

static dtrun_view text(const char* chars) {
    dtrun_view view;
    view.data = chars;
    view.size = strlen(chars);
    return view;
}

static int failed(const char* what) {
    fprintf(stderr, "%s: %s\n", what, dtrun_error_text());
    return 1;
}

/* Every rank brings something that the others need, and learns what they bring. */
static int exchange(dtrun_worker* worker) {
    char mine[32];
    dtrun_list all;
    size_t i;
    snprintf(mine, sizeof mine, "port-%u", 5000u + (unsigned)dtrun_rank(worker));
    if (dtrun_fence(worker, text("addresses"), text(mine), 60000, &all) != DTRUN_OK)
        return failed("fence");
    for (i = 0; i < all.count; ++i)
        printf("rank %u of %u: rank %u has %s\n", (unsigned)dtrun_rank(worker),
               (unsigned)dtrun_world_size(worker), (unsigned)i, (const char*)all.items[i].data);
    dtrun_free(all.items);
    return 0;
}

static int share_result(dtrun_worker* worker) {
    dtrun_bytes result;
    if (dtrun_rank(worker) == 0 && dtrun_set(worker, text("result"), text("42")) != DTRUN_OK)
        return failed("set");
    if (dtrun_get(worker, text("result"), 60000, &result) != DTRUN_OK) return failed("get");
    printf("rank %u: the result is %s\n", (unsigned)dtrun_rank(worker), (const char*)result.data);
    dtrun_free(result.data);
    return 0;
}

int main(void) {
    dtrun_worker* worker;
    int status;
    if (dtrun_init(NULL, &worker) != DTRUN_OK) return failed("init");
    status = exchange(worker);
    if (status == 0 && dtrun_barrier(worker, text("step"), 60000) != DTRUN_OK)
        status = failed("barrier");
    if (status == 0 && dtrun_progress(worker, 1) != DTRUN_OK) status = failed("progress");
    if (status == 0 && dtrun_world_size(worker) > 1) status = share_result(worker);
    dtrun_finalize(worker, status == 0 ? NULL : dtrun_error_text());
    return status;
}
