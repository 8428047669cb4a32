// The parts of libcrypto (OpenSSL 3.0) that VaultCrypto calls.
#pragma once
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

// An OSSL_PARAM keeps the addresses of its name and its value. Both are temporaries when Swift passes them. So the
// parameter list is made here, where it outlives the call. It returns 1 on success, as libcrypto does.

static inline int openssl_scrypt(
    EVP_KDF_CTX *context, const void *passphrase, size_t passphrase_size, const void *salt, size_t salt_size,
    uint64_t n, uint32_t r, uint32_t p, uint64_t max_memory, void *out, size_t out_size) {
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PASSWORD, (void *)passphrase, passphrase_size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)salt, salt_size),
        OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_N, &n),
        OSSL_PARAM_construct_uint32(OSSL_KDF_PARAM_SCRYPT_R, &r),
        OSSL_PARAM_construct_uint32(OSSL_KDF_PARAM_SCRYPT_P, &p),
        OSSL_PARAM_construct_uint64(OSSL_KDF_PARAM_SCRYPT_MAXMEM, &max_memory),
        OSSL_PARAM_construct_end(),
    };
    return EVP_KDF_derive(context, (unsigned char *)out, out_size, params);
}
