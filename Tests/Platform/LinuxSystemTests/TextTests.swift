import Glibc
import LinuxSystem
import SystemPackage
import Testing

@Suite struct TextTests {
    @Test("hexadecimal digits come back as the bytes they spell")
    func hexadecimalDigitsComeBack() {
        #expect(Hexadecimal.encode([0x00, 0xC3, 0xFF]) == "00c3ff")
        #expect(Hexadecimal.encode(UInt64(0x1F)) == "000000000000001f")
        #expect(Hexadecimal.decode("00c3fF".utf8) == [0x00, 0xC3, 0xFF])
        #expect(Hexadecimal.decode("00c".utf8) == nil && Hexadecimal.decode("0g".utf8) == nil)
    }

    @Test("text for a message controls no terminal")
    func textForMessageControls() {
        #expect(shown(Array("a\u{1b}[2J\n\u{2028}\u{202e}é".utf8)) == "a?[2J???é")
        #expect(shown(Array("abcdef".utf8), limit: 3) == "abc…")
        #expect(FilePath("/a\tb").shown == "/a?b")
        #expect("it's\u{7}\\".escapedForTerminal == "it\\'s\\u{7}\\\\")
    }

    @Test("a waker is readable until it is cleared")
    func wakerIsReadableUntil() throws {
        let waker = try Waker()
        #expect(try retrying { read(waker) } == 0)
        waker.wake()
        waker.wake()
        #expect(try retrying { read(waker) } == 1)
        waker.clear()
        #expect(try retrying { read(waker) } == 0)
    }

    private func read(_ waker: Waker) -> Int32 {
        var entry = pollfd(fd: waker.fd, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0)
    }
}
