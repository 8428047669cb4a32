internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// The used slots of `vaultfs.journal` and their states. The records stay on disk.
struct VerifierJournal {
    final class Slot {
        /// The result of checking the files.
        enum State: Int {
            /// No file with this id was seen.
            case unmatched
            /// The record in the file verifies. The slot is not needed.
            case inPlace
            /// Neither the slot's record nor the file's verifies.
            case useless
            /// The slot holds the record.
            case honoured
        }

        let number: Int
        let fileID, chunk: UInt64
        let recordSize: Int
        private(set) var state = State.unmatched

        init(_ number: Int, _ found: (fileID: UInt64, chunkIndex: UInt64, recordSize: Int)) {
            self.number = number
            (fileID, chunk, recordSize) = found
        }

        /// If several files have the slot's id, the highest state counts.
        func note(_ new: State) {
            if state.rawValue < new.rawValue { state = new }
        }
    }

    let descriptor: Descriptor
    let chunkSize: Int
    private(set) var slots: [Slot] = []

    init(_ descriptor: Descriptor, chunkSize: Int) throws(StoreError) {
        self.descriptor = descriptor
        self.chunkSize = chunkSize
        let slotSize = JournalSlot.size(chunkSize: chunkSize)
        var bytes = [UInt8](repeating: 0, count: slotSize)
        for number in 0..<JournalSlot.count {
            let found = try bytes.withMutableBytes {
                (bytes) throws(StoreError) -> (fileID: UInt64, chunkIndex: UInt64, recordSize: Int)? in
                // A slot that was cut short is in use, as in `Journal`.
                bytes.initializeMemory(as: UInt8.self, repeating: 0)
                _ = try descriptor.read(at: UInt64(number * slotSize), into: bytes)
                return JournalSlot.parse(UnsafeRawBufferPointer(bytes), chunkSize: chunkSize)
            }
            if let found { slots.append(Slot(number, found)) }
        }
    }

    /// Reads a slot's record. Returns nil if it has been cut short.
    func record(in slot: Slot) throws(StoreError) -> [UInt8]? {
        let offset = UInt64(slot.number * JournalSlot.size(chunkSize: chunkSize) + JournalSlot.recordOffset)
        let bytes = try descriptor.read(at: offset, count: slot.recordSize)
        return bytes.count == slot.recordSize ? bytes : nil
    }
}

extension Verifier {
    /// Opens the journal. Returns nil if there is none that can be read.
    func openJournal(_ root: Descriptor) -> VerifierJournal? {
        let object = VerifierObject(Journal.entry)
        do throws(StoreError) {
            // Pinned first: only a regular file may be opened.
            let pin = try Descriptor(at: root.fd, Journal.entry, flags: linux_O_PATH)
            let status = try pin.status()
            if let fault = Journal.fault(of: status) {
                report(.damaged, object, "journal: \(fault)", remedy: .clearJournal)
            }
            guard status.st_mode & S_IFMT == S_IFREG else { return nil }
            return try VerifierJournal(try pin.reopened(flags: O_RDONLY), chunkSize: layout.chunkSize)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        } catch {
            report(error, object, "journal")
        }
        return nil
    }

    /// Reports the slots that are not needed, once every file has been checked.
    func reportUnusedSlots() {
        let object = VerifierObject(Journal.entry)
        for slot in journal?.slots ?? [] {
            switch slot.state {
            case .honoured: continue
            case .unmatched: report(.leftover, object, "slot \(slot.number): no file has its id", remedy: .free)
            case .inPlace: report(.leftover, object, "slot \(slot.number): its record is in place", remedy: .free)
            case .useless:
                report(
                    .leftover, object, "slot \(slot.number): its record does not verify", remedy: .keepSlot,
                    slot: slot.number)
            }
        }
    }
}
