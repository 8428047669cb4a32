internal import FileSystem
internal import LinuxSystem
package import Locking
internal import Synchronization
package import SystemPackage
package import VaultCrypto
package import ViewFormats

/// The secret of a view, given at mount: a passphrase or a key file. Any thread.
package final class ViewSecrets: Sendable {
    package enum Origin: Codable, Sendable {
        /// All keys come from the source, the key command or `--key`.
        case none
        /// The key is in a file, read again at an unlock.
        case keyFile(FilePath, ViewCipher?)
        /// The view's key is the passphrase's SHA-256.
        case hashedPassphrase
        /// Keys are derived from the passphrase and each file's salt.
        case passphrase(OpenSSLKeyDerivation)
    }

    /// Cost of the verifier: about 50 ms, the minimum of a vault's slots.
    private static let verifierLogN = 15

    private let origin: Origin
    private let passphrase = Mutex<SecretBytes?>(nil)
    /// The passphrase's salted scrypt hash, the only means to check a passphrase at an unlock.
    private let verifier: (salt: [UInt8], hash: SecretBytes)?

    /// - Parameters:
    ///   - secret: the passphrase, if the origin has one. Wiped if only a part of it counts.
    ///   - isLockable: false if the passphrase is never forgotten and checked again.
    /// - Throws: `.invalidInput` without a needed passphrase; `.library`.
    package init(_ origin: Origin, secret: SecretBytes?, isLockable: Bool = true) throws(CryptoError) {
        self.origin = origin
        switch origin {
        case .none, .keyFile: verifier = nil
        case .hashedPassphrase, .passphrase:
            guard let given = secret, let secret = Self.used(of: given, origin) else {
                throw .invalidInput("no passphrase")
            }
            // Wipe it here, because the caller keeps a reference that `forget` does not know.
            if secret !== given { given.forget() }
            passphrase.withLock { $0 = secret }
            guard isLockable else {
                verifier = nil
                return
            }
            var salt: [UInt8] = []
            for _ in 0..<2 { withUnsafeBytes(of: try SecureRandom.integer()) { salt += $0 } }
            verifier = (salt, try Self.hash(secret, salt))
        }
    }

    /// Returns the bytes that count: for `openssl`, the first line, as read by `openssl -pass file:`. Nil if there are
    /// none.
    private static func used(of secret: SecretBytes, _ origin: Origin) -> SecretBytes? {
        guard case .passphrase = origin else { return secret }
        let size = secret.withUnsafeBytes { $0.firstIndex(of: UInt8(ascii: "\n")) ?? $0.count }
        if size == secret.count { return secret }
        return size == 0 ? nil : secret.subrange(0..<size)
    }

    private static func hash(_ passphrase: SecretBytes, _ salt: [UInt8]) throws(CryptoError) -> SecretBytes {
        try Scrypt.derive(passphrase: passphrase, salt: salt, logN: verifierLogN, r: 8, p: 1, count: 32)
    }

    /// True if an unlock needs the passphrase.
    var needsPassphrase: Bool { verifier != nil }

    /// Returns the one key of all files, or nil if each file has its own.
    /// - Throws: `.keyForgotten`, `.library`.
    package func sharedKey(_ keyFile: SecretBytes?) throws(CryptoError) -> KeyMaterial? {
        switch origin {
        case .none, .passphrase: return nil
        case .keyFile: return keyFile.map { KeyMaterial(key: $0) }
        case .hashedPassphrase:
            return try passphrase.withLock { $0 }.map { (secret) throws(CryptoError) in
                KeyMaterial(key: try Sha256.digest(secret))
            }
        }
    }

    /// Derives the key and the initial vector of an `openssl enc` file. Slow by design.
    /// - Throws: `.store(.locked)` if the passphrase is forgotten, else `.store` with libcrypto's error.
    package func derive(salt: [UInt8], cipher: ViewCipher) throws(ViewError) -> KeyMaterial {
        guard case .passphrase(let derivation) = origin, let secret = passphrase.withLock({ $0 }) else {
            throw .store(.locked)
        }
        do throws(CryptoError) {
            let (key, vector) = try derivation.derive(passphrase: secret, salt: salt, keySize: cipher.keySize)
            return KeyMaterial(key: key, iv: vector)
        } catch {
            throw .store(StoreError(error))
        }
    }

    /// Wipes the passphrase. Waits for a running derivation.
    func forget() {
        let forgotten = passphrase.withLock { secret in
            defer { secret = nil }
            return secret
        }
        // Wipe it in place, because others have references to it, such as the stack frame of the mount.
        forgotten?.forget()
    }

    /// Returns the shared key again, after `forget`.
    func restore(_ secret: SecretBytes?) throws(UnlockRefusal) -> KeyMaterial? {
        if needsPassphrase {
            guard let secret = secret.flatMap({ Self.used(of: $0, origin) }) else { throw .secretNeeded }
            passphrase.withLock { $0 = secret }
        }
        do {
            guard case .keyFile(let path, let cipher) = origin else { return try sharedKey(nil) }
            return try KeyFile.read(path, cipher: cipher)
        } catch ViewError.noKey(let reason) {
            throw .failed(reason)
        } catch {
            throw .failed("\(error)")
        }
    }

    /// Checks that a secret is the passphrase of the mount.
    /// - Throws: `.wrongSecret`; `.failed` if libcrypto fails.
    package func check(_ candidate: SecretBytes) throws(UnlockRefusal) {
        guard let verifier else { return }
        let hash: SecretBytes
        guard let candidate = Self.used(of: candidate, origin) else { throw .wrongSecret("wrong passphrase") }
        do throws(CryptoError) { hash = try Self.hash(candidate, verifier.salt) } catch { throw .failed("\(error)") }
        guard hash.hasSameBytes(as: verifier.hash) else { throw .wrongSecret("wrong passphrase") }
    }
}
