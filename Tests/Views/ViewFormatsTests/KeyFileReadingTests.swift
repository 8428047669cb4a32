import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultCrypto

@testable import ViewFormats

/// Files read as keys.
@Suite(.timeLimit(.minutes(60))) struct KeyFileReadingTests {
    let place: KeyPlace

    init() throws { place = try KeyPlace() }

    private func read(_ path: String) throws(ViewError) -> KeyMaterial {
        try KeyFile.read([UInt8](path.utf8), in: place.root, cipher: .aes128CBC)
    }

    @Test("A key file is found inside the source")
    func inside() throws {
        try place.makeDirectory("d")
        try place.write("key")
        try place.write("d/key")
        for path in ["key", "d/key", "/key", "d//key"] {
            #expect(try read(path).key.exposed == KeyPlace.key)
        }
    }

    @Test("Nothing outside the source is read, and no file that would block")
    func refused() throws {
        try place.write("key")
        try place.makeDirectory("d")
        try place.makeLink("link", to: "key")
        try place.makeLink("dlink", to: "d")
        try place.makeFifo("fifo")
        try place.write("d/key")
        for (path, reason) in [
            ("link", "it is a symbolic link"), ("fifo", "it is not a regular file"), ("d", "it is a directory"),
            ("dlink/key", "Not a directory"), ("../key", "Invalid argument"), ("d/../key", "Invalid argument"),
            ("", "Invalid argument"), ("none", "No such file or directory"), ("key/x", "Not a directory"),
        ] {
            #expect(noKeyReason(try read(path)) == "cannot read key file \(path): \(reason)")
        }
    }

    @Test("The user's own key files: links are followed, fifos refused")
    func own() throws {
        let file = try place.write("key")
        try place.makeLink("link", to: "key")
        try place.makeFifo("fifo")
        #expect(try KeyFile.read(file, cipher: nil).key.exposed == KeyPlace.key)
        #expect(try KeyFile.read(place.file("link"), cipher: nil).key.exposed == KeyPlace.key)
        let fifo = place.file("fifo")
        #expect(
            noKeyReason(try KeyFile.read(fifo, cipher: nil))
                == "cannot read key file \(fifo): it is not a regular file")
    }

    @Test("On the command line a key may come in pieces, from a pipe")
    func pipe() throws {
        try place.makeFifo("fifo")
        let writer = try BackgroundThread { [place] in
            let fd = open(place.file("fifo").string, O_WRONLY | O_CLOEXEC)
            write(fd, Array(KeyPlace.key[..<7]), 7)
            write(fd, Array(KeyPlace.key[7...]), 9)
            close(fd)
        }
        #expect(try KeyFile.readOnce(place.file("fifo"), cipher: nil).key.exposed == KeyPlace.key)
        writer.join()
        #expect(
            noKeyReason(try KeyFile.readOnce("/dev/zero", cipher: .aes128CBC))
                == "key file /dev/zero has more than 4096 bytes, where a key of 16 bytes or 32 hexadecimal digits is expected"
        )
    }
}
