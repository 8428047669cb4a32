import TestSupport
import Testing

extension PlainMountTests {
    /// Extended attributes on a store with little space for them.
    @Suite struct Attributes {
        @Test("a hundred small attributes fit if they fit the store", .enabled(if: Products.isRoot, "takes root"))
        func many() throws {
            let vault = try VaultUnderTest(on: .ext4).mounted()
            let expected = try vault.account.program("posix/many_attributes.py", [vault.plain]).succeeded()
            let found = try vault.account.program("posix/many_attributes.py", [vault.mountpoint]).succeeded()
            expectSameLines(found.output, as: expected.output, "posix/many_attributes.py")
            #expect(expected.output.split(separator: "\n").count > 20)
            let before = try attributes(vault)
            #expect(before.split(separator: "\n").count > 150)
            try vault.unmount()
            let reading = try vault.read(["--require-sealed", "--xattrs"]).succeeded()
            #expect(reading.output.split(separator: "\n").count { $0.hasPrefix("xattr\tuser.test") } == 150)
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            try vault.vaultfs(["rekey", vault.vault, "--passfile", vault.passfile]).succeeded()
            try vault.mount()
            #expect(try attributes(vault) == before)
        }

        @Test(
            "access lists are found, with listxattrat(2) and without it",
            .enabled(if: Products.isRoot, "a filter of calls takes root"), arguments: [true, false])
        func lists(hasCall: Bool) throws {
            let vault = try VaultUnderTest()
            let without = [Products.python, Products.program("commands/without_call.py"), "listxattrat"]
            try vault.mount(launcher: hasCall ? [] : without)
            let script = """
                cd $1; touch none listed; setfacl -m u:1234:r listed; ln -s listed link
                umask 0; touch "$(printf %0200d 0)"; setfacl -m u:1234:r 0*
                """
            try vault.account.run(["sh", "-ec", script, "sh", vault.mountpoint]).succeeded()
            try vault.unmount()
            // After a new mount, the daemon knows nothing of any object.
            try vault.mount(launcher: hasCall ? [] : without)
            let listing = try vault.account.run(["ls", "-l", vault.mountpoint]).succeeded().output
            let marked = listing.split(separator: "\n").dropFirst().map { line in
                (line.split(separator: " ")[0].last == "+", line.split(separator: " ")[8])
            }
            #expect(marked.filter { $0.0 }.map { $0.1.first } == ["0", "l"], "\(listing)")
            #expect(marked.count == 4)
            try vault.unmount()
        }

        private func attributes(_ vault: VaultUnderTest) throws -> String {
            let code = """
                import os, sys
                for name in ("kept", "directory"):
                    path = os.path.join(sys.argv[1], name)
                    for attribute in sorted(os.listxattr(path)): print(name, attribute, os.getxattr(path, attribute))
                """
            return try vault.account.run([Products.python, "-c", code, vault.mountpoint]).succeeded().output
        }
    }
}
