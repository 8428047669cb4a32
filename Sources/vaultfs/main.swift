import FuseSession
import Glibc
import Logging
import SystemPackage
import VaultFileSystem
import VaultFormat
import VaultStore
// temporary: vaultfs VAULT MOUNTPOINT PASS
let a = CommandLine.arguments
do {
    let d = try VaultDirectory.open(FilePath(a[1]))
    let k = try d.unlock(with: try SlotSecret.passphrase(Array(a[3].utf8)))
    let ring = try KeyRing(masterKey: k, configuration: d.configuration)
    let store = try Store(root: d.root, keyRing: ring, cacheSize: 32 << 20, isReadOnly: d.isOnReadOnlyStore)
    let fs = try VaultFileSystem(store: store)
    let s = try FuseSession(fileSystem: fs, options: MountOptions(mountpoint: FilePath(a[2]), fuseOptions: a.count > 4 ? a[4].split(separator: ",").map(String.init) : [], sourceName: a[1]), logger: Logger(label: "vaultfs"))
    s.run()
} catch { print("error: \(error)"); exit(1) }
