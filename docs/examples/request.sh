dir=${E3_DIR:-~/.local/state/e3/default}
node=$(e3 get nodes -o json | grep -m 1 -o 'http://[0-9.:]*')
curl --silent --show-error --fail-with-body "$node/v1/apps/rta-ptc?key=alice" \
  -H "Authorization: Bearer $(cat "$dir/token")" \
  -H "Content-Type: application/json" \
  -H "Idempotency-Key: message-1" \
  -d '{"author": "alice", "tag": "rust", "text": "hi", "features": [0, 0, 0, 0, 0, 0, 0, 0]}'
