import SystemPackage
import Testing
import ViewFormats

@Suite struct ViewErrorTests {
    @Test("A file that is malformed is EIO, one without a key ENOKEY")
    func errnos() {
        #expect(ViewError.malformed("…").errno == .ioError)
        #expect(ViewError.noKey("…").errno.rawValue == 126)
    }
}
