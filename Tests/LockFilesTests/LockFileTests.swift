import Glibc
import SystemPackage
import TestSupport
import Testing

@testable import LockFiles

@Suite struct LockFileTests {
    @Test func nothingThereIsUnlocked() throws {
        #expect(try LockFile(path: "/proc/self/../../run/nothing-here.lock").look() == .absent)
    }
}
