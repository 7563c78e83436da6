// Is linked with libdtrun, and never run: tests look how it is loaded.
#include <dtrun.h>

int main() {
    return dtrun_version() == nullptr;
}
