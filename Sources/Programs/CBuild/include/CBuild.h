// Facts about the build.
#pragma once

// The commit that the program was built from, as hexadecimal digits. Empty if unknown.
const char *vaultfs_build_commit(void);
