import SystemPackage
import Testing
import VaultCrypto

@testable import ViewFormats

/// The order of key sources.
@Suite(.timeLimit(.minutes(60))) struct KeySourcesTests {
    let place: KeyPlace
    let uri = [UInt8]("https://host/dir/k%31.bin?token".utf8)
    let directory = [UInt8]("d".utf8)

    init() throws {
        place = try KeyPlace()
        try place.makeDirectory("d")
        try place.write("mapped", [UInt8]("mapped file key.".utf8))
    }

    private func text(_ material: KeyMaterial) -> String { String(decoding: material.key.exposed, as: UTF8.self) }

    @Test("hls: --key, then --key-command, then a file beside the playlist")
    func order() throws {
        try place.write("d/k1.bin")
        try place.write("k1.bin", [UInt8]("not this one, no".utf8))
        let name = KeyName.uri(uri, directory: directory)
        let command = place.command("printf 'of the command..'")
        let map = [uri: place.file("mapped")]
        #expect(text(try place.sources(map, command: command).load(name)) == "mapped file key.")
        #expect(text(try place.sources(command: command).load(name)) == "of the command..")
        #expect(text(try place.sources().load(name)) == "sixteen key byte")
        // URIs are compared by their bytes, not by their decoded form.
        let other = KeyName.uri([UInt8]("https://host/dir/k1.bin?token".utf8), directory: directory)
        #expect(text(try place.sources(map).load(other)) == "sixteen key byte")
        let root = KeyName.uri([UInt8]("k1.bin".utf8), directory: [])
        #expect(text(try place.sources().load(root)) == "not this one, no")
    }

    @Test("hls: a relative URI is a path from the playlist, then a name beside it; never outside the source")
    func relative() throws {
        try place.makeDirectory("d/e")
        try place.makeDirectory("keys")
        try place.write("k.bin", [UInt8]("the root's own k.".utf8.prefix(16)))
        try place.write("keys/k.bin", [UInt8]("in keys, k.bin..".utf8))
        let sources = place.sources()
        func key(_ uri: String, _ directory: String) throws -> String {
            text(try sources.load(.uri([UInt8](uri.utf8), directory: [UInt8](directory.utf8))))
        }
        #expect(try key("keys/k%2Ebin?x#y", "") == "in keys, k.bin..")
        #expect(try key("./e/../../keys//k.bin", "d") == "in keys, k.bin..")
        #expect(try key("elsewhere/k.bin", "") == "the root's own k")
        // Outside the source, and through a link, only the name counts.
        #expect(try key("../\(FilePath(place.path).lastComponent?.string ?? "")/keys/k.bin", "") == "the root's own k")
        try place.makeLink("link", to: "keys")
        #expect(try key("link/k.bin", "") == "the root's own k")
        // If a file exists but is not a key, it is an error and not skipped.
        try place.write("d/k.bin")
        try place.write("d/e/k.bin", [1, 2, 3])
        #expect(
            noKeyReason(try sources.load(.uri([UInt8]("e/k.bin".utf8), directory: directory)))?
                .hasPrefix("no key for e/k.bin: key file d/e/k.bin has 3 bytes") == true)
    }

    @Test("hls: a given source that fails is not skipped")
    func failures() throws {
        try place.write("d/k1.bin")
        let name = KeyName.uri(uri, directory: directory)
        let missing = [uri: place.file("missing")]
        let command = place.command("exit 4")
        #expect(
            noKeyReason(try place.sources(missing, command: command).load(name))
                == "no key for https://host/dir/k%31.bin?…: cannot read key file \(place.path)/missing: "
                + "No such file or directory")
        #expect(
            noKeyReason(try place.sources(command: command).load(name))
                == "no key for https://host/dir/k%31.bin?…: the key command failed with exit code 4")
    }

    @Test("hls: the error lists the sources tried")
    func tried() throws {
        try place.makeLink("d/k1.bin", to: "../mapped")
        let sources = place.sources()
        for (uri, reason) in [
            ("k1.bin", "k1.bin: cannot read key file d/k1.bin: it is a symbolic link"),
            ("x/none", "x/none: there is no key file d/x/none or d/none"),
            ("https://h/n", "https://h/n: there is no key file d/n"),
            ("../../k1.txt", "../../k1.txt: there is no key file d/k1.txt"),
            ("https://h/..", "https://h/..: it names no file"),
        ] {
            #expect(
                noKeyReason(try sources.load(.uri([UInt8](uri.utf8), directory: directory)))
                    == "no key for \(reason), and neither --key nor --key-command is given for it")
        }
        #expect(
            noKeyReason(try sources.load(.uri([UInt8]("k".utf8), directory: [])))?
                .hasPrefix("no key for k: there is no key file k,") == true)
        let data = [UInt8]("data:;base64,c2l4dGVlbg".utf8)
        #expect(
            noKeyReason(try place.sources(command: place.command("echo")).load(.uri(data, directory: directory)))
                == "no key for data:…: the key in the playlist has 7 bytes, which is not a key of 16 bytes or 32 hexadecimal digits"
        )
        let map = [data: place.file("mapped")]
        #expect(text(try place.sources(map).load(.uri(data, directory: directory))) == "mapped file key.")
    }

    @Test(
        "hls: a key in the playlist itself, which no command is asked for",
        arguments: [
            "data:;base64,ACAgICAgICAgICAgICAg/w==", "DATA:text/plain;charset=UTF-8;BASE64,ACAgICAgICAgICAgICAg/w",
            "data:,%00%20%20%20%20%20%20%20%20%20%20%20%20%20%20%ff", "data:;base64,ACAgICAgICAgICAgICAg_w%3D%3D",
        ])
    func data(_ uri: String) throws {
        let name = KeyName.uri([UInt8](uri.utf8), directory: directory)
        let key = try place.sources(command: place.command("exit 1")).load(name).key.exposed
        #expect(key == [0] + [UInt8](repeating: 0x20, count: 14) + [0xFF])
        for wrong in ["data:", "data:;base64,*", "data:;base64"] {
            #expect(noKeyReason(try place.sources().load(.uri([UInt8](wrong.utf8), directory: directory))) != nil)
        }
    }

    @Test("hls: a file of another length is no key; a key with a newline is")
    func hlsLength() throws {
        try place.write("d/long", KeyPlace.key + KeyPlace.key)
        try place.write("d/line", KeyPlace.key + [0x0A])
        let sources = place.sources()
        let reason = noKeyReason(try sources.load(.uri([UInt8]("long".utf8), directory: directory)))
        #expect(reason?.contains("key file d/long has 32 bytes") == true)
        #expect(try sources.load(.uri([UInt8]("line".utf8), directory: directory)).key.count == 16)
    }

    @Test("The manifest's key files: inside the source, or the user's own by absolute path")
    func manifest() throws {
        try place.write("d/k")
        let sources = place.sources()
        let inside = KeyName.manifest(path: [UInt8]("d/k".utf8), cipher: nil)
        let absolute = KeyName.manifest(path: [UInt8]("\(place.path)/mapped".utf8), cipher: .aes128CBC)
        #expect(text(try sources.load(inside)) == "sixteen key byte")
        #expect(text(try sources.load(absolute)) == "mapped file key.")
        let outside = KeyName.manifest(path: [UInt8]("../k".utf8), cipher: nil)
        #expect(noKeyReason(try sources.load(outside)) != nil)
    }

    @Test("A file's key: the manifest's, else the view's, else the command's")
    func ofFile() throws {
        let path = [UInt8]("a".utf8)
        let entry = ViewManifest.Entry(key: [UInt8]("k".utf8), cipher: .aes256CBC)
        let bare = ViewManifest.Entry()
        #expect(
            KeyName.ofFile(path, entry: entry, hasSharedKey: true, cipher: .aes128CBC)
                == .manifest(path: [UInt8]("k".utf8), cipher: .aes256CBC))
        #expect(KeyName.ofFile(path, entry: bare, hasSharedKey: true, cipher: .aes128CBC) == .shared)
        #expect(
            KeyName.ofFile(path, entry: bare, hasSharedKey: false, cipher: .aes128CBC)
                == .path(path, cipher: .aes128CBC))
        #expect(KeyName.ofFile(path, entry: nil, hasSharedKey: false, cipher: nil) == .path(path, cipher: nil))
        let command = place.command("printf %s \"$VAULTFS_KEY_PATH is the path...\"")
        #expect(text(try place.sources(command: command).load(.path(path, cipher: nil))) == "a is the path...")
        #expect(
            noKeyReason(try place.sources().load(.path([0x61, 0x0A], cipher: nil)))
                == "no key for a?: give --key-file or --key-command, or name one in view.json")
    }

    @Test("A derived key is returned with its initial vector")
    func derived() throws {
        let sources = place.sources { (salt, cipher) throws(ViewError) in
            salt.withUnsafeBytes { bytes in
                KeyMaterial(key: SecretBytes(copying: bytes), iv: SecretBytes(copying: bytes))
            }
        }
        let material = try sources.load(.derived(salt: [1, 2, 3, 4, 5, 6, 7, 8], cipher: .aes256CBC))
        #expect(material.key.exposed == [1, 2, 3, 4, 5, 6, 7, 8])
        #expect(material.iv?.exposed == [1, 2, 3, 4, 5, 6, 7, 8])
        #expect(
            noKeyReason(try material.check(fits: .aes256CBC, path: [0x61]))
                == "a: aes-256-cbc takes a key of 32 bytes, this one has 8")
    }
}
