"""A graph network by index_add, as tutorials write it: real PyTorch and `python -m strata.torch` print the same numbers."""
import math
import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.parameter import Parameter
from torch.nn.modules.module import Module
import torch.nn as nn
import torch.optim as optim

np.random.seed(42)
torch.manual_seed(42)
n, k = 120, 3
labels_np = np.random.randint(0, k, n)
feats = np.random.randn(n, 16).astype(np.float32) + np.eye(k, 16)[labels_np].astype(np.float32) * 1.0
edges = [(i, j) for i in range(n) for j in range(n) if i != j and np.random.rand() < (0.10 if labels_np[i] == labels_np[j] else 0.01)]
edge_index = torch.LongTensor(np.array(edges).T)
features = torch.FloatTensor(feats)
labels = torch.LongTensor(labels_np)
idx_train, idx_test = torch.LongTensor(range(40)), torch.arange(40, n)

class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter('bias', None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1. / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, edge_index):
        support = torch.mm(input, self.weight)
        src, dst = edge_index
        deg = torch.zeros(input.size(0)).index_add_(0, dst, torch.ones(dst.size(0))).clamp(min=1)
        norm = (deg[src] * deg[dst]).pow(-0.5).unsqueeze(-1)
        output = torch.zeros_like(support).index_add(0, dst, support[src] * norm) + support
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return self.__class__.__name__ + ' (' + str(self.in_features) + ' -> ' + str(self.out_features) + ')'

class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super(GCN, self).__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        x = self.gc2(x, adj)
        return F.log_softmax(x, dim=1)

def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double()
    correct = correct.sum()
    return correct / len(labels)


def seeded(module, scale=0.3):
    rng = np.random.RandomState(7)
    for p in module.parameters():
        p.data.copy_(torch.from_numpy(np.asarray(rng.standard_normal(tuple(p.shape)) * scale)))
    return module

model = seeded(GCN(16, 16, k, 0.0))
optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(40):
    model.train()
    optimizer.zero_grad()
    output = model(features, edge_index)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    acc_train = accuracy(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    if epoch % 10 == 0:
        print('Epoch: {:04d}'.format(epoch + 1), 'loss_train: {:.4f}'.format(loss_train.item()), 'acc_train: {:.4f}'.format(acc_train.item()))
model.eval()
output = model(features, edge_index)
print('RESULT', F.nll_loss(output[idx_test], labels[idx_test]).item(), accuracy(output[idx_test], labels[idx_test]).item())
