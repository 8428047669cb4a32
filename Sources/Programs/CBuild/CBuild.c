#include "CBuild.h"

const char *vaultfs_build_commit(void) { return VAULTFS_COMMIT; }
