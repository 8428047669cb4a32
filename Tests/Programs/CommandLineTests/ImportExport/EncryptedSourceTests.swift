import Foundation
import TestSupport
import Testing

/// An import of the encrypted side of a vault, whose ciphertext would be encrypted again.
@Suite(.timeLimit(.minutes(20))) struct EncryptedSourceTests {
    @Test(
        "commands for vaults name the program of another encrypted directory",
        arguments: [["mount"], ["verify"], ["slot", "list"], ["export"]])
    func commandsForVaults(command: [String]) throws {
        let place = try SlotPlace()
        let source = place.file("source")
        try Command(["mkdir", source]).run().succeeded()
        try place.directory.write("source/gocryptfs.conf", "{}")
        let target = ["mount", "export"].contains(command[0]) ? [place.file("target")] : []
        let words =
            "\(source) holds gocryptfs.conf, so it is a directory of gocryptfs, not a vault: mount it with gocryptfs"
        try place.expectRefusal(3, words) { try place.run(command + [source] + target) }
    }

    @Test(
        "it is refused without force",
        arguments: [
            "gocryptfs.conf", ".encfs6.xml", "cryfs.config", "vault.cryptomator", "masterkey.cryptomator",
            ".securefs.json",
            "vaultfs.json",
        ]
    )
    func itIsRefusedWithoutForce(name: String) throws {
        let place = try SlotPlace()
        let source = place.file("source")
        try Command(["mkdir", source]).run().succeeded()
        try place.directory.write("source/\(name)", "{}")
        try place.expectRefusal(2, "mount it and import the mount, or import it as it is with --force") {
            // Before a secret is asked for.
            try place.run(["import", source, place.vault], launcher: ["setsid", "--wait"])
        }
        try place.run(["import", source, place.vault, "--force"] + place.opening).succeeded()
        // Only the top shows what a directory is, and a single file is no vault.
        let above = place.file("above")
        try Command(["sh", "-c", "mkdir '\(above)' && mv '\(source)' '\(above)'"]).run().succeeded()
        try place.run(["import", above, place.vault] + place.opening).succeeded()
        let file = "\(above)/source/\(name)"
        try place.run(["import", file, "\(place.vault):copy"] + place.opening).succeeded()
    }
}
