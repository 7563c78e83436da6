/* A libpmix.so.2 of a version that does not go together with newer ones: all that is asked of it is
   its version. */
#include <stdlib.h>

const char* PMIx_Get_version(void) {
    return "OpenPMIx 3.2.5, repo rev: v3.2.5 (PMIx Standard: 3.2, Stable ABI: 0.0)";
}

int PMIx_server_init(void) {
    abort();
}

int PMIx_server_finalize(void) {
    abort();
}

int PMIx_server_register_nspace(void) {
    abort();
}

int PMIx_server_deregister_nspace(void) {
    abort();
}

int PMIx_server_register_client(void) {
    abort();
}

int PMIx_server_setup_fork(void) {
    abort();
}

int PMIx_server_dmodex_request(void) {
    abort();
}

const char* PMIx_Error_string(void) {
    abort();
}
