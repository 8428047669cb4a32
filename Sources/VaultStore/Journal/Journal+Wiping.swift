internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension Journal {
    /// Zeroes every slot that is not retained, durably: a freed one loses only its file id, and keeps the ciphertext. While
    /// nobody else writes; of a journal that is open for writing.
    /// - Throws: what pwrite(2) and fdatasync(2) say.
    func wipeFreeSlots() throws(StoreError) {
        guard let descriptor else { return }
        let kept = retained.withLock { Set($0.values.joined().map(\.slot)) }
        var bytes = [UInt8](repeating: 0, count: slotSize)
        let zeros = bytes
        for slot in 0..<JournalSlot.count where !kept.contains(slot) {
            let offset = UInt64(slot * slotSize)
            let count = try bytes.withMutableBytes { (buffer) throws(StoreError) -> Int in
                try descriptor.read(at: offset, into: buffer)
            }
            // A hole stays one: there may be no room for it.
            guard bytes[..<count].contains(where: { $0 != 0 }) else { continue }
            try Array(zeros[..<count]).withBytes { (zeros) throws(StoreError) in try descriptor.write(zeros, at: offset)
            }
        }
        try descriptor.synchronize(dataOnly: true)
    }
}
