internal import FileSystem
internal import LinuxSystem
package import Locking
internal import Synchronization
package import SystemPackage
package import VaultCrypto
package import ViewFormats

/// What the keys of a view are made of beyond its files: a passphrase, or a key file given at mount. Any thread.
package final class ViewSecrets: Sendable {
    package enum Origin: Codable, Sendable {
        /// Keys come from the source, the key command or `--key` alone.
        case none
        /// Read again after a lock that forgets.
        case keyFile(FilePath, ViewCipher?)
        /// The view's key is the passphrase's SHA-256.
        case hashedPassphrase
        /// Keys are derived from the passphrase and each file's salt.
        case passphrase(OpenSSLKeyDerivation)
    }

    /// Cost of the verifier: some 50 ms, as for a vault's slots at the least.
    private static let verifierLogN = 15

    private let origin: Origin
    private let passphrase = Mutex<SecretBytes?>(nil)
    /// Tells whether a passphrase is the one of before, when nothing else is left of it: its scrypt, salted.
    private let verifier: (salt: [UInt8], hash: SecretBytes)?

    /// - Parameters:
    ///   - secret: the passphrase, where the origin is one.
    ///   - isLockable: whether it may be forgotten, and given again.
    package init(_ origin: Origin, secret: SecretBytes?, isLockable: Bool = true) throws(CryptoError) {
        self.origin = origin
        switch origin {
        case .none, .keyFile: verifier = nil
        case .hashedPassphrase, .passphrase:
            guard let secret else { throw .invalidInput("no passphrase") }
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

    private static func hash(_ passphrase: SecretBytes, _ salt: [UInt8]) throws(CryptoError) -> SecretBytes {
        try Scrypt.derive(passphrase: passphrase, salt: salt, logN: verifierLogN, r: 8, p: 1, count: 32)
    }

    /// Whether bringing the keys back after a lock that forgets takes the passphrase.
    var needsPassphrase: Bool { verifier != nil }

    /// The view's one key, where all files have one.
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

    /// The key and the initial vector of an `openssl enc` file. Slow by design.
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

    /// Waits for whoever derives a key right now.
    func forget() {
        let forgotten = passphrase.withLock { secret in
            defer { secret = nil }
            return secret
        }
        // In place: there are others who hold it, such as the frame of who mounted.
        forgotten?.forget()
    }

    /// The view's one key again, after `forget`.
    func restore(_ secret: SecretBytes?) throws(UnlockRefusal) -> KeyMaterial? {
        if needsPassphrase {
            guard let secret else { throw .secretNeeded }
            passphrase.withLock { $0 = secret }
        }
        do {
            guard case .keyFile(let path, let cipher) = origin else { return try sharedKey(nil) }
            return KeyMaterial(key: try KeyFile.read(path, cipher: cipher).key)
        } catch ViewError.noKey(let reason) {
            throw .failed(reason)
        } catch {
            throw .failed("\(error)")
        }
    }

    /// Whether a secret that a user gives is the passphrase of before.
    package func check(_ candidate: SecretBytes) throws(UnlockRefusal) {
        guard let verifier else { return }
        let hash: SecretBytes
        do throws(CryptoError) { hash = try Self.hash(candidate, verifier.salt) } catch { throw .failed("\(error)") }
        guard hash.hasSameBytes(as: verifier.hash) else { throw .wrongSecret("wrong passphrase") }
    }
}
