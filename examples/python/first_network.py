"""A network with one hidden layer learns the exclusive or."""

import strata as st

st.manual_seed(1)
x = st.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
y = st.tensor([[0.0], [1.0], [1.0], [0.0]])
net = st.nn.Sequential(st.nn.Linear(2, 8), st.nn.Tanh(), st.nn.Linear(8, 1))
optimizer = st.optim.AdamW(net.parameters(), lr=0.05)
for step in range(300):
    optimizer.zero_grad()
    loss = st.nn.functional.binary_cross_entropy_with_logits(net(x), y)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}\n{st.sigmoid(net(x))}")
assert loss.item() < 0.05
