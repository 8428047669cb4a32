import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The rights of a view, equal to those of its source also for others than the owner.
    @Suite struct ViewRights {
        private func mounted() throws -> ViewUnderTest {
            let view = try ViewUnderTest().made("enc", ["aes-128-cbc", "16"])
            try view.account.run(["mv", "\(view.source)/file-16", "\(view.source)/f"]).succeeded()
            try view.mount(
                "cbc", ["--key-file", "\(view.keys)/hex", "--iv", ViewCase.vector, "-o", "allow_other"])
            return view
        }

        @Test(
            "random owners, groups, modes and ACLs: each user may open what the source lets them",
            .enabled(if: Products.isRoot, "takes root"))
        func random() throws {
            let view = try mounted()
            let result = try view.program(
                "views/view_rights.py", [view.source, view.mountpoint, "1", "60"], timeout: .seconds(120)
            ).succeeded()
            #expect(result.output == "600 opens\n")
            #expect(try view.problems() == [])
            try view.unmount()
        }

        @Test("a user reads a view of root's readable files", .enabled(if: Products.isRoot, "takes root"))
        func readable() throws {
            let view = try ViewUnderTest().made("enc", ["aes-128-cbc", "16"])
            let ordinary = try #require(Account.ordinary)
            // The user owns the view, and root its source.
            let own = try ViewUnderTest(ordinary)
            try Command(["sh", "-c", "chmod 755 $1 $2; chmod 644 $1/* $2/*", "sh", view.source, view.keys]).run()
                .succeeded()
            try Command(["cp", "-r", "\(view.source)/file-16", "\(view.keys)/hex", own.source]).run().succeeded()
            try Command(["chown", "0:0", "\(own.source)/file-16"]).run().succeeded()
            try own.mount("cbc", ["--key-file", "\(own.source)/hex", "--iv", ViewCase.vector])
            try ordinary.run(["cmp", "\(own.mountpoint)/file-16", "\(own.mountpoint)/file-16"]).succeeded()
            try own.unmount()
        }
    }
}
