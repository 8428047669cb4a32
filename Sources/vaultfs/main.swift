print("vaultfs")
