/* A library of another ABI version, which the module has to refuse. */
int iswitch_abi_version(void);
int iswitch_abi_version(void) { return 999; }
