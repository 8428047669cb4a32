import Foundation
import TestSupport
import VaultFormat

/// A state of a file as vaultfs wrote it: the backing bytes, and their plaintext.
struct TamperState {
    let backing: [UInt8]
    let plaintext: [UInt8]
    let isSealed: Bool
    let isSparse: Bool

    init(backing: [UInt8], plaintext: [UInt8]) {
        self.backing = backing
        self.plaintext = plaintext
        // The flags are at 104 (FileFormat, File header).
        isSealed = backing[104] & 1 != 0
        isSparse = backing[104] & 2 != 0
    }
}

/// FileFormat's promises for a backing file under attack, checked without cryptography: a header or record is authentic
/// if its bytes equal one written for this file and this position.
struct TamperModel {
    /// The correct result of a reader.
    struct Shown {
        /// The length returned by stat(2).
        let length: Int
        /// The position from which reads fail, because the header does not authenticate more. Equal to `length` if it
        /// authenticates everything.
        let authenticLength: Int
        /// The content below `authenticLength`, chunk by chunk. Nil for an error.
        let chunks: [ArraySlice<UInt8>?]

        /// The content of the whole file, or nil if any part is an error.
        var whole: [UInt8]? {
            guard authenticLength == length else { return nil }
            var bytes: [UInt8] = []
            bytes.reserveCapacity(length)
            for chunk in chunks {
                guard let chunk else { return nil }
                bytes += chunk
            }
            return bytes
        }
    }

    private let layout: ChunkLayout
    /// The states of each file, oldest first.
    let files: [[TamperState]]
    private let zeros: [UInt8]

    init(layout: ChunkLayout, files: [[TamperState]]) {
        self.layout = layout
        self.files = files
        zeros = [UInt8](repeating: 0, count: layout.recordSize)
    }

    /// Returns the correct result for these backing bytes. Nil if the file cannot be opened.
    /// - Parameter backing: from a vault whose last mount has ended properly.
    func shown(_ backing: [UInt8]) -> Shown? {
        guard backing.count >= 128 else { return nil }
        let header = backing[..<128]
        for states in files {
            guard let state = states.first(where: { same(header, $0.backing[..<128]) }) else { continue }
            return shown(backing, state, states)
        }
        return nil
    }

    private func shown(_ backing: [UInt8], _ header: TamperState, _ states: [TamperState]) -> Shown? {
        let length = Int(layout.plaintextLength(ofBackingSize: UInt64(backing.count)))
        var authenticLength = length
        if header.isSealed {
            if length < header.plaintext.count { return nil }
            authenticLength = header.plaintext.count
        }
        let count = Int(layout.chunkCount(ofLength: UInt64(authenticLength)))
        let chunks = (0..<count).map { index -> ArraySlice<UInt8>? in
            let rest = authenticLength - index * layout.chunkSize
            return chunk(index, min(rest, layout.chunkSize), length: length, backing, header, states)
        }
        return Shown(length: length, authenticLength: authenticLength, chunks: chunks)
    }

    private func chunk(
        _ index: Int, _ wanted: Int, length: Int, _ backing: [UInt8], _ header: TamperState, _ states: [TamperState]
    ) -> ArraySlice<UInt8>? {
        // The record's size follows from the backing size or, for the last record, from the sealed length.
        let laidOut = Int(layout.plaintextSize(ofChunk: UInt64(index), length: UInt64(length)))
        for size in Set([laidOut, wanted]).sorted(by: >) {
            let record = record(index, size, backing)
            if header.isSparse && same(record, zeros[..<record.count]) {
                return zeros[..<wanted]
            }
            for state in states {
                let here = Int(layout.plaintextSize(ofChunk: UInt64(index), length: UInt64(state.plaintext.count)))
                guard here == size, same(record, self.record(index, size, state.backing)),
                    // A hole's zeros are not a record.
                    !same(record, zeros[..<record.count])
                else { continue }
                let start = index * layout.chunkSize
                return state.plaintext[start..<(start + wanted)]
            }
        }
        return nil
    }

    private func record(_ index: Int, _ size: Int, _ backing: [UInt8]) -> ArraySlice<UInt8> {
        let start = Int(layout.recordOffset(ofChunk: UInt64(index)))
        return backing[start..<(start + size + 32)]
    }
}
