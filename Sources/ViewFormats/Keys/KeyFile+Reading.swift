internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
package import SystemPackage
internal import VaultCrypto

extension KeyFile {
    /// Reads a key to the end of what the user gave at the command line, which may be a pipe (`/dev/fd/3`): waits for
    /// whoever writes it, so only before the mount.
    /// - Throws: `noKey`.
    package static func readOnce(_ path: FilePath, cipher: ViewCipher?) throws(ViewError) -> Found {
        let name = "key file \(path.shown)"
        return try naming(name) { () throws(StoreError) in
            let flags = O_RDONLY | O_CLOEXEC | O_NOCTTY
            return Descriptor(owning: try retrying { path.withPlatformString { open($0, flags) } })
        } read: { (file, buffer) throws(StoreError) in
            var count = 0
            while count < buffer.count {
                let piece = UnsafeMutableRawBufferPointer(rebasing: buffer[count...])
                let read = try retrying { Glibc.read(file.fd, piece.baseAddress, piece.count) }
                if read == 0 { break }
                count += read
            }
            return count
        } parse: { (bytes) throws(ViewError) in
            try parse(bytes, cipher: cipher, name: name)
        }
    }

    /// Reads a key from one of the user's own files, links followed. Regular files only: never waits for a writer.
    /// - Throws: `noKey`.
    package static func read(_ path: FilePath, cipher: ViewCipher?) throws(ViewError) -> Found {
        try readRegular(name: "key file \(path.shown)", cipher: cipher) { () throws(StoreError) in
            let flags = linux_O_PATH | O_CLOEXEC
            return Descriptor(owning: try retrying { path.withPlatformString { open($0, flags) } })
        }
    }

    /// Reads a key from a file inside the source. Regular files only, and no link is followed on the way.
    /// - Parameter path: relative to `root`, without `..`.
    /// - Throws: `noKey`.
    package static func read(
        _ path: [UInt8], in root: Descriptor, cipher: ViewCipher?
    ) throws(ViewError) -> Found {
        try readRegular(name: "key file \(shown(path))", cipher: cipher) { () throws(StoreError) in
            try Descriptor.place(of: path, in: root)
        }
    }

    private static func readRegular(
        name: String, cipher: ViewCipher?, locate: () throws(StoreError) -> Descriptor
    ) throws(ViewError) -> Found {
        try naming(name) { () throws(StoreError) in
            try locate().openedRegularFile()
        } read: { (file, buffer) throws(StoreError) in
            try file.read(at: 0, into: buffer)
        } parse: { (bytes) throws(ViewError) in
            try parse(bytes, cipher: cipher, name: name)
        }
    }

    /// Opens, reads and parses; the buffer in between is wiped.
    private static func naming(
        _ name: String, open: () throws(StoreError) -> Descriptor,
        read: (Descriptor, UnsafeMutableRawBufferPointer) throws(StoreError) -> Int,
        parse: (UnsafeRawBufferPointer) throws(ViewError) -> Found
    ) throws(ViewError) -> Found {
        // One more than a file may have, to see that it has more.
        try withWipedBuffer(maximumSize + 1) { (buffer) throws(ViewError) in
            let count: Int
            do throws(StoreError) {
                count = try read(try open(), buffer)
            } catch {
                throw .noKey("cannot read \(name): \(reason(error))")
            }
            return try parse(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
        }
    }

    private static func reason(_ error: StoreError) -> String {
        switch error {
        case .system(let errno): "\(errno)"
        case .damaged(let reason), .crypto(let reason): reason
        }
    }
}
