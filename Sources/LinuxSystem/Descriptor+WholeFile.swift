package import Glibc
internal import SystemPackage

extension Descriptor {
    /// read(2) to the end, from the current position. Nil if there are more than `limit` bytes.
    /// Works for files of /proc, whose size is 0.
    package func readToEnd(limit: Int) throws(StoreError) -> [UInt8]? {
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = try piece.withUnsafeMutableBufferPointer { (buffer) throws(StoreError) -> Int in
                try retrying { Glibc.read(fd, buffer.baseAddress, buffer.count) }
            }
            if count == 0 { return bytes }
            bytes += piece[..<count]
            if bytes.count > limit { return nil }
        }
    }

    /// Replaces `entry` of this directory by a file with `contents`, durably and atomically. The contents are written
    /// to `temporary`, fsynced, renamed, and the directory is fsynced. On failure the temporary file is removed.
    package func replace(_ entry: String, with contents: [UInt8], temporary: String, mode: mode_t) throws(StoreError) {
        let file = try Descriptor(
            at: fd, Array(temporary.utf8), flags: O_WRONLY | O_CREAT | O_EXCL, mode: mode)
        do throws(StoreError) {
            try contents.withUnsafeBufferPointer { (buffer) throws(StoreError) in
                try file.write(UnsafeRawBufferPointer(buffer), at: 0)
            }
            try file.synchronize(dataOnly: false)
            try retrying { renameat(fd, temporary, fd, entry) }
        } catch {
            unlinkat(fd, temporary, 0)
            throw error
        }
        try synchronize(dataOnly: false)
    }
}
